\set key random(1, 9000000000000000000)
SELECT outcome, status, response_code, response_body FROM idem_run(:key::text, '{"item": "tea", "quantity": 2}', 'place');
