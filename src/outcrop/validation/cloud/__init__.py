"""Check credentials of AWS, Azure and Google Cloud."""
