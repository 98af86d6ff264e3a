"""Tables: what they hold, and how they read in Markdown, CSV, plain text and HTML."""
