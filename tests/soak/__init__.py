"""The soak: processes take locks of every kind while faults are drawn, and a judge reads what they noted."""
