"""What the papers prove, as functions: both sides of a statement, a table that checks it, a figure over a range."""
