"""Glossary: what the words and figures mean."""
