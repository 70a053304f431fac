"""What the buyers do in the shop: which page they ask for, and what stands on the shelf for them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from demo_shop.configuration import Configuration


@dataclass(frozen=True, slots=True)
class Visit:
    slug: str
    #: What one buyer does, for "Each buyer ...".
    does: str
    #: What is between the read and the write, for the reader of the report.
    race: str
    stock: int
    products: int = 1
    #: Between read and write, seconds.
    pause: float = 0.01
    #: Whether the answer tells of an order, or of its refusal. The article's pages answer the same to all.
    tells: bool = True
    #: Whether the stock is in Redis and not in the database.
    in_redis: bool = False

    def furnish(self, shop: Configuration, stock: int | None, pause: float | None) -> Configuration:
        """*shop* as this visit needs it, where nothing else was asked for."""
        pause = self.pause if pause is None else pause
        return replace(
            shop,
            stock=self.stock if stock is None else stock,
            products=self.products,
            pause=pause,
            kill_pause=pause,
        )


BUY, CART, REDUCE, KILL = "buy", "cart", "reduce", "kill"
VISITS = {
    BUY: Visit(
        BUY,
        "buys one unit",
        "For each purchase the shop looks up the stock, thinks for a few milliseconds, "
        "and writes the stock back minus one.",
        stock=100,
    ),
    CART: Visit(
        CART,
        "checks out a cart: some of the products, in any order",
        "For each cart the shop looks up the stock of its products, thinks for a few milliseconds, "
        "and writes each stock back minus what is bought. A cart is bought as a whole or not at all.",
        stock=25,
        products=4,
        # A cart is more work for the database, and only work in the same moment shows the race.
        pause=0.04,
    ),
    REDUCE: Visit(
        REDUCE,
        "asks for GET /stock/reduce?id=1, which always answers OK",
        "The shop looks up the stock, thinks, and if there was some lets the database subtract one.",
        # As in the article: the last unit is the one that is sold twice. One thinks only once, so longer.
        stock=1,
        pause=0.2,
        tells=False,
    ),
    KILL: Visit(
        KILL,
        "asks for GET /kill, which sells from a stock in Redis",
        "The shop reads the stock from Redis, thinks, and writes it back minus one. No database is asked.",
        stock=20,
        pause=0.05,
        tells=False,
        in_redis=True,
    ),
}
