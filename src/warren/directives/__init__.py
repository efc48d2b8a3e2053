"""The `#DW` language: its words with their places, its rules, and what to say of a mistake."""
