"""Keep, read and list incidents, with their assignees and comments."""
