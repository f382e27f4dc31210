"""One function per verb of the product. A service raises the domain's errors and never commits: the door does."""
