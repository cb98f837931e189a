"""Everything specific to variational autoencoders: model, criterion, measures, latent space."""
