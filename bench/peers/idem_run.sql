SELECT response_body AS response FROM idem_run(:key::text, '{"item": "A-1", "quantity": 2}', 'place_' || :size::int) \gset
