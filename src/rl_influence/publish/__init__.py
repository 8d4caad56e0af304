"""What people read: LaTeX tables, the blocks of the README, the HTML report, the schemas of the configuration."""
