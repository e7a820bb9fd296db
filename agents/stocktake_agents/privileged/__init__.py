"""What reads hidden state: arms that show it. Nothing that plays or scores fairly may import this."""
