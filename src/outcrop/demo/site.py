"""The example's web site: pages, a script bundle with source map, a leaking endpoint, a broken page."""

import json
from dataclasses import dataclass

from outcrop.demo.planted import fill_template

_PAGE = "text/html; charset=utf-8"
_SCRIPT = "text/javascript; charset=utf-8"

_MAPS = "«gcp_api_key alive maps|AIza{{base64url 35}}»"
_OPENAI = "«openai_api_key alive assistant|sk-proj-{{base64url 73}}T3BlbkFJ{{base64url 73}}A»"
_LAUNCH = "«launchdarkly_key narrow flags|sdk-{{uuid}}»"
_SQUARE = "«square_access_token alive tills|EAAA{{base64url 59}}a»"

_HEAD = (
    "<!doctype html><html lang=en><title>Acme</title><p>A company that was made up for the Outcrop demo.</p>"
)
_INDEX = f"""{_HEAD}
<ul><li><a href="/shops.html">Shops</a><li><a href="/status">Status</a><li><a href="/docs/api.html">For developers</a></ul>
<meta name="google-maps-key" content="{_MAPS}">
<script src="/assets/app.5d41402a.js"></script>
"""
_SHOPS = f"""{_HEAD}
<script>window.tills = {{ token: "{_SQUARE}", location: "L1" }};</script>
"""
_DOCS = f"""{_HEAD}
<pre>curl -H "Authorization: Bearer «netlify_token dead docs|nfp_{{{{base62 36}}}}»" https://api.netlify.com/api/v1/sites</pre>
<a href="/api/config.json">The settings of the site</a>
"""
_CONFIG = """{
  "note": "made up for the Outcrop demo",
  "figma": "«figma_pat dead design|figd_{{base64url 39}}a»",
  "newrelic": {"apiKey": "«newrelic_user_key alive browser|NRAK-{{BASE36 27}}»"}
}
"""
_CONFIG_LATER = '{"note": "made up for the Outcrop demo"}\n'
_BUNDLE = f"""(()=>{{const f="{_LAUNCH}";\
const d="https://discord.com/api/webhooks/«discord_webhook unasked alerts|{{{{digits 19}}}}/{{{{base62 68}}}}»";\
fetch("/api/config.json").then(r=>r.json()).then(c=>console.log(f,c));}})();
//# sourceMappingURL=app.5d41402a.js.map
"""
_ASSISTANT = f"""// made up for the Outcrop demo
import OpenAI from "openai";

export const client = new OpenAI({{ apiKey: "{_OPENAI}", dangerouslyAllowBrowser: true }});
"""


@dataclass(frozen=True, slots=True)
class SiteResponse:
    status: int
    media_type: str
    body: str


def pages(*, later: bool) -> dict[str, SiteResponse]:
    """Return the responses of the site by path; `later`: one credential has been removed."""
    source_map = {
        "version": 3,
        "sources": ["webpack://acme/src/assistant.ts"],
        "sourcesContent": [fill_template(_ASSISTANT)],
        "mappings": "AAAA",
    }
    texts = {
        "/": (_PAGE, _INDEX),
        "/shops.html": (_PAGE, _SHOPS),
        "/docs/api.html": (_PAGE, _DOCS),
        "/assets/app.5d41402a.js": (_SCRIPT, _BUNDLE),
        "/api/config.json": ("application/json", _CONFIG_LATER if later else _CONFIG),
        "/robots.txt": ("text/plain", "User-agent: *\nAllow: /\n"),
    }
    served = {path: SiteResponse(200, kind, fill_template(text)) for path, (kind, text) in texts.items()}
    served["/assets/app.5d41402a.js.map"] = SiteResponse(200, "application/json", json.dumps(source_map))
    served["/status"] = SiteResponse(503, _PAGE, "<!doctype html><p>Back soon.</p>")
    return served


def templates() -> list[str]:
    """Return the template of everything that the site serves at any time."""
    return [_INDEX, _SHOPS, _DOCS, _CONFIG, _BUNDLE, _ASSISTANT]
