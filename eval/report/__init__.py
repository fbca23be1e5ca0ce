"""What an evaluation found, and how it is shown: tables, figures, one HTML page, Markdown."""
