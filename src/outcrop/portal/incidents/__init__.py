"""The pages of incidents: the list, and one incident."""

from outcrop.portal.incidents import listing, page

ROUTES = [*listing.ROUTES, *page.ROUTES]
