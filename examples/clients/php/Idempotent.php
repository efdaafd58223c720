<?php

declare(strict_types=1);

/** A response: body is anything that becomes JSON. */
final class Reply
{
    public function __construct(
        public readonly int $code,
        public readonly mixed $body = null,
        public readonly bool $replayed = false,
    ) {
    }
}

/** The request was not carried out; the code is what to tell an HTTP client. */
final class Refused extends RuntimeException
{
    public function __construct(int $code, string $message, public readonly ?int $retryAfter = null)
    {
        parent::__construct($message, $code);
    }
}

/**
 * Requests that are carried out once, on the extension idempotency.
 *
 * Claim, work and end of the request are one transaction:
 *
 *     $orders = new Idempotent($pdo, 'shop/orders');
 *     $reply = $orders->run($key, $order, function (PDO $pdo, array $order) {
 *         ...
 *         return new Reply(201, ['order_id' => 1]);
 *     });
 */
final class Idempotent
{
    public function __construct(private PDO $pdo, private string $scope = '')
    {
        $pdo->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_EXCEPTION);
    }

    /** @param callable(PDO, mixed): Reply $work */
    public function run(string $key, mixed $request, callable $work): Reply
    {
        $this->pdo->beginTransaction();
        try {
            $reply = $this->claim($key, $request);
            if ($reply === null) {
                $reply = $work($this->pdo, $request);
                $this->finish($key, $reply);
            }
            $this->pdo->commit();
            return $reply;
        } catch (Throwable $error) {
            if ($this->pdo->inTransaction()) {
                $this->pdo->rollBack();
            }
            throw $error;
        }
    }

    /** The stored reply; null where the request is ours to carry out. */
    private function claim(string $key, mixed $request): ?Reply
    {
        $statement = $this->pdo->prepare(
            "SELECT outcome, status, response_code, response_body,
                    array_to_string(differs, ', ') AS differs,
                    ceil(extract(epoch FROM retry_after))::int AS retry_after
               FROM idem_claim(:key, :request, scope => :scope)"
        );
        $statement->execute([
            'key' => $key, 'request' => self::encode($request), 'scope' => $this->scope,
        ]);
        $row = $statement->fetch(PDO::FETCH_OBJ);

        return match ($row->outcome) {
            'claimed' => null,
            'replay' => new Reply((int) $row->response_code,
                json_decode($row->response_body ?? 'null', flags: JSON_THROW_ON_ERROR), true),
            'mismatch' => throw new Refused(422, "key was used for another request: $row->differs"),
            'in_progress' => throw new Refused($row->status === 'failed' ? 503 : 409,
                'request is in progress', (int) max(1, $row->retry_after ?? 1)),
            default => throw new Refused(409, 'outcome of an earlier attempt is unknown'),
        };
    }

    private function finish(string $key, Reply $reply): void
    {
        $this->pdo
            ->prepare('SELECT idem_finish(:key, :body, response_code => :code, scope => :scope)')
            ->execute([
                'key' => $key, 'body' => self::encode($reply->body),
                'code' => $reply->code, 'scope' => $this->scope,
            ]);
    }

    private static function encode(mixed $value): string
    {
        return json_encode($value, JSON_THROW_ON_ERROR | JSON_PRESERVE_ZERO_FRACTION);
    }
}
