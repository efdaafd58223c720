# frozen_string_literal: true

require 'json'
require 'pg'

# Requests that are carried out once, on the extension idempotency.
#
# Claim, work and end of the request are one transaction:
#
#   orders = Idempotent.new(connection, scope: 'shop/orders')
#   reply = orders.run(key, order) do |connection|
#     ...
#     Idempotent::Reply.new(201, { order_id: 1 })
#   end
class Idempotent
  # A response: body is anything that becomes JSON.
  Reply = Struct.new(:code, :body, :replayed)

  # The request was not carried out; code is what to tell an HTTP client.
  class Refused < StandardError
    attr_reader :code, :retry_after

    def initialize(code, message, retry_after = nil)
      super(message)
      @code = code
      @retry_after = retry_after
    end
  end

  def initialize(connection, scope: '')
    @connection = connection
    @scope = scope
  end

  def run(key, request)
    @connection.transaction do
      claim(key, request) || yield(@connection).tap { |reply| finish(key, reply) }
    end
  end

  private

  # The stored reply; nil where the request is ours to carry out.
  def claim(key, request)
    row = @connection.exec_params(<<~SQL, [key, JSON.generate(request), @scope])[0]
      SELECT outcome, status, response_code, response_body,
             array_to_string(differs, ', ') AS differs,
             ceil(extract(epoch FROM retry_after))::int AS retry_after
        FROM idem_claim($1, $2, scope => $3)
    SQL

    case row['outcome']
    when 'claimed' then nil
    when 'replay'
      Reply.new(row['response_code'].to_i, JSON.parse(row['response_body'] || 'null'), true)
    when 'mismatch'
      raise Refused.new(422, "key was used for another request: #{row['differs']}")
    when 'in_progress'
      raise Refused.new(row['status'] == 'failed' ? 503 : 409, 'request is in progress',
                        [1, row['retry_after'].to_i].max)
    else
      raise Refused.new(409, 'outcome of an earlier attempt is unknown')
    end
  end

  def finish(key, reply)
    @connection.exec_params(
      'SELECT idem_finish($1, $2, response_code => $3, scope => $4)',
      [key, JSON.generate(reply.body), reply.code, @scope]
    )
  end
end
