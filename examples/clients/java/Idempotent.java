import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Duration;

/**
 * Requests that are carried out once, on the extension {@code idempotency}.
 *
 * <p>Claim, work and end of the request are one transaction:
 *
 * <pre>{@code
 * Idempotent orders = new Idempotent("shop/orders");
 * Reply reply = orders.run(connection, key, orderAsJson, c -> {
 *     ...
 *     return new Reply(201, "{\"order_id\": 1}");
 * });
 * }</pre>
 *
 * <p>Bodies are JSON as text: they go through no number type on their way.
 */
public final class Idempotent {
    /** A response: a status code, and JSON as text, which may be null. */
    public record Reply(int code, String body, boolean replayed) {
        public Reply(int code, String body) {
            this(code, body, false);
        }
    }

    /** What is to be done once, in the transaction of the connection. */
    @FunctionalInterface
    public interface Work {
        Reply run(Connection connection) throws SQLException;
    }

    /** The request was not carried out; {@code code} is what to tell an HTTP client. */
    public static final class Refused extends Exception {
        private static final long serialVersionUID = 1;

        public final int code;
        /** When to come back; null where that would not help. */
        public final Duration retryAfter;

        Refused(int code, String message, Duration retryAfter) {
            super(message);
            this.code = code;
            this.retryAfter = retryAfter;
        }
    }

    private final String scope;

    public Idempotent(String scope) {
        this.scope = scope;
    }

    /** Runs the work, unless it was done, and answers what it answered then. */
    public Reply run(Connection connection, String key, String request, Work work)
            throws SQLException, Refused {
        boolean autoCommit = connection.getAutoCommit();

        connection.setAutoCommit(false);
        try {
            Reply reply = claim(connection, key, request);
            if (reply == null) {
                reply = work.run(connection);
                finish(connection, key, reply);
            }
            connection.commit();
            return reply;
        } catch (SQLException | Refused | RuntimeException | Error e) {
            connection.rollback();
            throw e;
        } finally {
            connection.setAutoCommit(autoCommit);
        }
    }

    /** The stored reply; null where the request is ours to carry out. */
    private Reply claim(Connection connection, String key, String request)
            throws SQLException, Refused {
        // Casts, since the driver sends strings as varchar.
        String sql = """
            SELECT outcome, status, response_code, response_body,
                   array_to_string(differs, ', '),
                   (extract(epoch FROM retry_after) * 1000)::bigint
              FROM idem_claim(?, ?::jsonb, scope => ?)""";

        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            statement.setString(1, key);
            statement.setString(2, request);
            statement.setString(3, scope);
            try (ResultSet row = statement.executeQuery()) {
                row.next();
                String outcome = row.getString(1);
                if (outcome.equals("claimed")) {
                    return null;
                }
                if (outcome.equals("replay")) {
                    return new Reply(row.getInt(3), row.getString(4), true);
                }
                throw refusal(outcome, row);
            }
        }
    }

    private static Refused refusal(String outcome, ResultSet row) throws SQLException {
        switch (outcome) {
            case "mismatch":
                return new Refused(422, "key was used for another request: "
                    + row.getString(5), null);
            case "in_progress":
                long millis = row.getLong(6);
                return new Refused("failed".equals(row.getString(2)) ? 503 : 409,
                    "request is in progress",
                    row.wasNull() ? Duration.ofSeconds(1) : Duration.ofMillis(millis));
            default:
                return new Refused(409, "outcome of an earlier attempt is unknown", null);
        }
    }

    private void finish(Connection connection, String key, Reply reply) throws SQLException {
        String sql = "SELECT idem_finish(?, ?::jsonb, response_code => ?, scope => ?)";

        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            statement.setString(1, key);
            statement.setString(2, reply.body());
            statement.setInt(3, reply.code());
            statement.setString(4, scope);
            statement.execute();
        }
    }
}
