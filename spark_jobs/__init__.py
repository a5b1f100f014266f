"""PySpark jobs that prove, range by range, that two sites hold the same data. Importing this
package does not start Spark.
"""

import wire  # noqa: F401  before any module of kio: see its docstring
