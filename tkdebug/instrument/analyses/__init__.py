"""What a recorded run comes to: plain functions of a session, for every view of it."""
