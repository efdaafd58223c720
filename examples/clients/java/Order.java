import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.util.stream.Collectors;

/** Places an order once: {@code Order URL KEY ITEM QUANTITY}. */
public final class Order {
    private Order() {
    }

    public static void main(String[] args) throws Exception {
        String key = args[1];
        String item = args[2];
        int quantity = Integer.parseInt(args[3]);
        String request = "{\"item\": %s, \"quantity\": %d}".formatted(json(item), quantity);

        try (Connection connection = DriverManager.getConnection(args[0])) {
            Idempotent.Reply reply = new Idempotent("shop/orders").run(connection, key,
                request, c -> new Idempotent.Reply(201, insert(c, item, quantity)));
            System.out.println(reply.code() + " " + reply.body()
                + (reply.replayed() ? " replayed" : ""));
        } catch (Idempotent.Refused refused) {
            System.out.println(refused.code + " " + refused.getMessage());
        }
    }

    private static String insert(Connection connection, String item, int quantity)
            throws java.sql.SQLException {
        String sql = "INSERT INTO orders (item, quantity) VALUES (?, ?) RETURNING id";

        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            statement.setString(1, item);
            statement.setInt(2, quantity);
            try (ResultSet row = statement.executeQuery()) {
                row.next();
                return "{\"order_id\": " + row.getInt(1) + "}";
            }
        }
    }

    /** A string in JSON; a library does it in real life. */
    private static String json(String text) {
        return text.chars()
            .mapToObj(c -> c < ' ' || c == '"' || c == '\\'
                ? "\\u%04x".formatted(c) : String.valueOf((char) c))
            .collect(Collectors.joining("", "\"", "\""));
    }
}
