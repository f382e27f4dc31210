"""The portal: server-rendered pages. Each form calls one service."""
