"""Push hooks: create and remove them (`manage`), and receive what the code hosts send (`receive`)."""
