\set key random(1, 9000000000000000000)
SELECT place_once(:key::text, '{"item": "tea", "quantity": 2}');
