#!/usr/bin/env ruby
# frozen_string_literal: true

# Places an order once: order.rb CONNECTION KEY ITEM QUANTITY

require_relative 'idempotent'

conninfo, key, item, quantity = ARGV
connection = PG.connect(conninfo)
order = { item: item, quantity: Integer(quantity) }

begin
  reply = Idempotent.new(connection, scope: 'shop/orders').run(key, order) do |c|
    id = c.exec_params('INSERT INTO orders (item, quantity) VALUES ($1, $2) RETURNING id',
                       order.values)[0]['id']
    Idempotent::Reply.new(201, { order_id: id.to_i })
  end
  puts "#{reply.code} #{JSON.generate(reply.body)}#{' replayed' if reply.replayed}"
rescue Idempotent::Refused => e
  puts "#{e.code} #{e.message}"
end
