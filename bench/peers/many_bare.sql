INSERT INTO orders (item, quantity) SELECT 'A-1', 2 FROM generate_series(1, :batch::int);
