"""`unitk latent`: texts as points of a space, and the paths between them."""
