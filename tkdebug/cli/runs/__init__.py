"""A recorded run of a script: its checks before, its records, its messages after."""
