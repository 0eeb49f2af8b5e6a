"""The pages, a file each: `page()` draws it."""
