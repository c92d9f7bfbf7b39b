"""RNN, GRU and LSTM, step by step."""
