"""The live view of `holdfast top`: what is seen, where one stands in it, how it is drawn, and the terminal it is drawn on."""
