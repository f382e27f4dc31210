"""Whether a credential is alive, and what it opens: asked of its issuer, harmlessly, and never more than need be."""
