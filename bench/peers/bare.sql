INSERT INTO orders (item, quantity) VALUES ('A-1', 2) RETURNING id \gset
