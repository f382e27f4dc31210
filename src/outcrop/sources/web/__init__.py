"""Crawl web sites."""
