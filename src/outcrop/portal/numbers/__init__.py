"""The page Numbers, and its tables as CSV files."""

from outcrop.portal.numbers import files, page
from outcrop.portal.request import get

ROUTES = [get("/numbers", page.show_numbers), get("/numbers/{table}.csv", files.download)]
