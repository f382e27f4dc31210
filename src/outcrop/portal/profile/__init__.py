"""Pages of the account: API keys, webhook, push hooks, team, security, display, plan, audit trail, export."""

from outcrop.portal.profile import audit, display, export, hooks, keys, plan, security, team, webhook

ROUTES = [
    *keys.ROUTES,
    *webhook.ROUTES,
    *hooks.ROUTES,
    *team.ROUTES,
    *security.ROUTES,
    *display.ROUTES,
    *plan.ROUTES,
    *audit.ROUTES,
    *export.ROUTES,
]
