"""Plans, reports and trees that `reprieve` gave for about sixty small stories, and has to give again."""
