"""Pages of the account: API keys, webhook, team, security, plan, audit trail, export."""

from outcrop.portal.profile import audit, export, keys, plan, security, team, webhook

ROUTES = [
    *keys.ROUTES,
    *webhook.ROUTES,
    *team.ROUTES,
    *security.ROUTES,
    *plan.ROUTES,
    *audit.ROUTES,
    *export.ROUTES,
]
