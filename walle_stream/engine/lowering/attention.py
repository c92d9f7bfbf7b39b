"""Attention and its kin: Attention, LinearAttention, FlexAttention, RotaryEmbedding."""
