"""Denoising: recover the temperatures of weather stations from noisy measurements."""
