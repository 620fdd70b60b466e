"""What is looked for while a kernel runs, one file for each check, each an observer."""
