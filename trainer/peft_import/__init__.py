"""Taking in an adapter that PEFT wrote, here or elsewhere."""
