"""The pages of incidents: the list, one incident, and the rules that assign new ones."""

from outcrop.portal.incidents import assignment, listing, page

ROUTES = [*listing.ROUTES, *page.ROUTES, *assignment.ROUTES]
