"""What outputs must, must not or should differently contain."""
