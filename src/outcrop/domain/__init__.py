"""The words of the product: pure data and rules, importing nothing else of ours."""
