"""Everything only a variational autoencoder has: model, criterion, measures, latent space."""
