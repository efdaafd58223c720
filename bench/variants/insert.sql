INSERT INTO orders (item, quantity) VALUES ('tea', 2) RETURNING id;
