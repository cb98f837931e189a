"""What training minimises: sums over a batch's asks, divided once per update by the loop."""
