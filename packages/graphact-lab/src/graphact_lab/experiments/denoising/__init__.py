"""Denoising: temperatures of weather stations from noisy ones (Molène). The paper's Figures 2c and 2d."""
