"""What the phone's sensors say, from termux-battery-status, sysfs, or a chosen fake."""
