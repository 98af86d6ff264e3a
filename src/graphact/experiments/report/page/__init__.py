"""The page: HTML, its style, and figures that follow the reader's colours."""
