"""What lorad sets up on the phone around a training: its wake lock and its notification."""
