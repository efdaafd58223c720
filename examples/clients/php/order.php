<?php

// Places an order once: php order.php DSN KEY ITEM QUANTITY

declare(strict_types=1);

require __DIR__ . '/Idempotent.php';

[, $dsn, $key, $item, $quantity] = $argv;

try {
    $orders = new Idempotent(new PDO($dsn), 'shop/orders');
    $reply = $orders->run(
        $key,
        ['item' => $item, 'quantity' => (int) $quantity],
        function (PDO $pdo, array $order): Reply {
            $statement = $pdo->prepare(
                'INSERT INTO orders (item, quantity) VALUES (:item, :quantity) RETURNING id'
            );
            $statement->execute($order);
            return new Reply(201, ['order_id' => $statement->fetchColumn()]);
        },
    );
    echo $reply->code, ' ', json_encode($reply->body), $reply->replayed ? ' replayed' : '', "\n";
} catch (Refused $refused) {
    echo $refused->getCode(), ' ', $refused->getMessage(), "\n";
}
